"""What the documentation's site is made of besides the texts in docs/: pages from the code, links, pictures."""
