"""SQL over state, in a child process that can do nothing else.

`child` is the program of that process, `parent` starts it and passes it tables, `wire` is what both say to each other.
"""
