"""Small kernels that truly have the fault a tool looks for, one file a tool, each with a twin that has not."""
