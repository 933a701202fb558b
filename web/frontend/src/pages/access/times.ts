const two = (number: number) => String(number).padStart(2, "0");

/** A time of the server (seconds since the epoch) as the reader's clock has it, to the minute. */
export function moment(at: number): string {
  const time = new Date(at * 1000);
  const day = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day} ${two(time.getHours())}:${two(time.getMinutes())}`;
}

/** The same with seconds. */
export function instant(at: number): string {
  return `${moment(at)}:${two(new Date(at * 1000).getSeconds())}`;
}
