"""Training of the embedded models: one loop, one optimiser, one record, used by every `train_*` pipeline."""
