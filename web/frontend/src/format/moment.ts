import { locale } from "../i18n";

/** Times of the server, in seconds since the epoch or as ISO 8601, as the reader's clock has them. */
type Time = number | string;

const two = (number: number) => String(number).padStart(2, "0");

const dateOf = (at: Time) => new Date(typeof at === "number" ? at * 1000 : at);

/** Date and time to the minute, in digits that stand below each other in a table. */
export function moment(at: Time): string {
  const time = dateOf(at);
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${two(time.getHours())}:${two(time.getMinutes())}`;
}

/** The same with seconds. */
export function instant(at: Time): string {
  return `${moment(at)}:${two(dateOf(at).getSeconds())}`;
}

/** Date and time to the minute within a text, the month by its name. */
export function momentInWords(at: Time): string {
  return dateOf(at).toLocaleString(locale(), { dateStyle: "medium", timeStyle: "short" });
}
