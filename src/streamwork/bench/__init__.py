"""The benchmarks behind ``streamwork bench``, their peers, results and pages."""
