"""Text and images for the lessons: generators, loaders, downloads."""
