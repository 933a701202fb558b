import rehypeHighlight from "rehype-highlight";

/** Colours of fenced code. Made once: registering its 37 languages for every text anew took a quarter of drawing one. */
const highlight = rehypeHighlight();
export default () => highlight;
