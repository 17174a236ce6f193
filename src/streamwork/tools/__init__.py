"""What people run: the command line, the doctor, the demo.

Everything here is about showing and starting; what it shows and starts lives in the packages above.
"""
