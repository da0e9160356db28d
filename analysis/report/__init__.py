"""Findings as text, Markdown, HTML, JSON and LaTeX; computes nothing."""
