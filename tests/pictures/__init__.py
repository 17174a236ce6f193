"""The pictures of docs/windows.md and docs/joins.md, drawn from what the examples of these pages compute.

`(cd tests; python -m pictures.draw)` draws them again, into docs/images/. A test compares the files with what a run draws.
"""
