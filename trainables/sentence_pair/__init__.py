"""The task of sentence pairs: train an encoder, score its cosines against labels."""
