"""Tables of scores, and how terminals, Markdown, LaTeX, CSV and HTML show them."""
