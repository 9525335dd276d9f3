"""Model kinds of this project and where each Hugging Face family keeps its parts."""
