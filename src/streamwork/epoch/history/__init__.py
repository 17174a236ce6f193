"""What `history.sqlite` keeps of past epochs: durations, counts, the ends of inputs."""
