"""What a trained model says of texts: masked words, likelihoods, vectors, answers."""
