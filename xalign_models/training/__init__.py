"""The frame of all trainings: they resume after an interruption, and their output records how it was made.

The loop is that of sentence-transformers' trainer. ``session`` frames a training, from the check whether the model
exists already to the saved model. ``trainer`` writes checkpoints of the trained weights alone, ``records`` the files
beside them. ``losses`` has the contrastive loss, ``config`` types of fields, ``borrowed`` the private names of other
packages, and ``processes`` decides which process writes.
"""
