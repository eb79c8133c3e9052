"""crosslight: sequence-to-sequence translation with Hydra, Lightning and an encoder-decoder Transformer of our own."""
