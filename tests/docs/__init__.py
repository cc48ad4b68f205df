"""The pages hold what they say: commands, names, figures, messages and recipes are compared with the code, or run."""
