"""`make operate`: the files of examples/operate before a real Prometheus, which reads real bridges."""
