// Loaded when a reader chooses it: 230 kB that nobody else needs.
import "@fontsource/opendyslexic/400.css";
import "@fontsource/opendyslexic/700.css";
