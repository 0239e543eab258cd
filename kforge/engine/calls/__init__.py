"""What is left to a library: its calls as steps of a plan, precision schemes around them, settings as an answer."""
