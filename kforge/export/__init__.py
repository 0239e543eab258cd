"""Export: an accepted candidate leaves as a PyTorch extension, a package of cubins, or one file; it never judges.

What is exported was verified before, by the environment; what leaves does not import kforge.
"""
