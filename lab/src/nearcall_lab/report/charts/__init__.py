"""The page's charts as SVG, one file for each kind. A chart's numbers stand in a table beside it as well."""
