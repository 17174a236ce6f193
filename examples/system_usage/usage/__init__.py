"""The parts of the system usage job."""
