import "./Markdown.css";

import { memo, useId } from "react";
import ReactMarkdown, { type Components, type Options } from "react-markdown";

import { t } from "../i18n";
import { directions } from "./directions";
import { markdownSyntax } from "./markdownSyntax";
import { delimited } from "./maths";
import "./reading";
import { useTextDrawing } from "./textDrawing";
import { withFences } from "./unfencedCode";
import { writtenTags } from "./writtenTags";

/**
 * A prompt's or response's text: GitHub's Markdown, code with colours also where it has no fences, TeX, each part in its
 * own direction. Texts are strangers': HTML in them is shown as it is written, scripts and remote images never load, links
 * open apart and tell nobody where from. Formulas and colours come after the text, when what draws them is loaded.
 */
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const prefix = useId(); // two texts of a page may both have a footnote 1
  const written = delimited(withFences(text));
  const drawing = useTextDrawing(written);
  return (
    <div className="markdown">
      <ReactMarkdown
        remarkPlugins={REMARK}
        rehypePlugins={[directions, ...drawing]}
        remarkRehypeOptions={{ clobberPrefix: `${prefix}-` }}
        components={COMPONENTS}
      >
        {written}
      </ReactMarkdown>
    </div>
  );
});

const REMARK: Options["remarkPlugins"] = [markdownSyntax, writtenTags];

const COMPONENTS: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ),
  // Never fetched: the address alone would tell its server who looks at what.
  img: ({ src, alt }) =>
    typeof src === "string" ? (
      <a href={src} target="_blank" rel="noopener noreferrer nofollow">
        {t("Image, not fetched")}
        {alt ? `: ${alt}` : ""}
      </a>
    ) : (
      alt
    ),
  // A text's headings stand below those of the page it is shown in.
  h1: ({ children, dir }) => <h4 dir={dir}>{children}</h4>,
  h2: ({ children, dir }) => <h4 dir={dir}>{children}</h4>,
  h3: ({ children, dir }) => <h5 dir={dir}>{children}</h5>,
  h4: ({ children, dir }) => <h5 dir={dir}>{children}</h5>,
  h5: ({ children, dir }) => <h6 dir={dir}>{children}</h6>,
  // Wide code and tables scroll in their own box, also from the keyboard.
  pre: ({ children, dir }) => (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled
    <pre dir={dir} tabIndex={0}>
      {children}
    </pre>
  ),
  table: ({ children, dir }) => (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled
    <div className="markdown-table" dir={dir} tabIndex={0} role="group" aria-label={t("Table")}>
      <table>{children}</table>
    </div>
  ),
  input: ({ checked }) => <span>{checked ? "[x]" : "[ ]"}</span>,
};
