"""The figures of `paceline plot`: several runs against each other, by group; one kind of figure a file."""
