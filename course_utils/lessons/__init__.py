"""The course's own implementations, one module a lesson: the reference answers, and
what later lessons import.
"""
