"""Compare knowledge-distillation methods for BERT-like teachers and smaller students."""
