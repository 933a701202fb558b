import { later, useLater } from "./later";

/** What reads Markdown, 40 kB: a session's first text is there before it, as it was written. */
export const markdown = later(() => import("./Markdown"));

/** A text as Markdown, and as it was written until what reads it is loaded. */
export function FormattedText({ text }: { text: string }) {
  const loaded = useLater(markdown);
  return loaded === null ? <div className="message-plain" dir="auto">{text}</div> : <loaded.Markdown text={text} />;
}
