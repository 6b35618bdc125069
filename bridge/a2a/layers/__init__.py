"""The layers around an engine. Each layer is one feature, and is there only if the configuration asks for it.

A layer has the operations of the engine (`TaskOperations`). It passes each operation to the next layer inside, and may
change the request, the caller or the answer. The order from outside is: operators, replicated, engine. The replica that
another replica asks begins at its engine: the asking replica has passed the layers.
"""
