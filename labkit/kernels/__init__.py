"""Attention over keys and values, from tensors to tensors. Imports no other room.

Still empty: the first two rungs run `transformers` models, whose attention comes with them.
"""
