"""Lesson 00: softmax."""
