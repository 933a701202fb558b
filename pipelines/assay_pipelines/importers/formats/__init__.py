"""The layouts of published preference data sets and of other tools, one module for each publisher or tool."""
