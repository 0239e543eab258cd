"""From programs to text: the CUDA of each schedule's body and the candidate's module, as a person would write them."""
