import "katex/dist/katex.min.css";

import rehypeKatex from "rehype-katex";

/** TeX drawn by KaTeX; what it cannot read stays as written. */
const draw = rehypeKatex({ strict: "ignore", errorColor: "currentColor", maxExpand: 200, maxSize: 20 });
export default () => draw;
