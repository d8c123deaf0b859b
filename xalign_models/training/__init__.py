"""What all trainings share: they resume after an interruption, and their output records how it was made.

The loop is that of sentence-transformers' trainer. ``session`` frames a training, from the check whether it is done
already to the saved model. ``trainer`` adds checkpoints of the trained weights alone, ``records`` the files beside
them, ``losses`` the contrastive loss, ``schedulers`` the learning-rate schedules, and ``processes`` decides which
process writes.
"""
