"""Plans: orders, builds, studies, reproduction and the sample fleet."""
