"""Tools for testing jobs and the system itself, shipped to users: what is here is not needed at run time."""
