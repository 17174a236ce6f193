"""State of one checkpoint or savepoint, for the command line.

`StatePoint` is where state is read from, `ComponentState` the rows of one component there. `diff` compares two points, `query` is
SQL over one, `editing` and `importing` make savepoints.
"""
