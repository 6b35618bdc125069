"""What a release consists of, and the first minutes of somebody who installs it."""
