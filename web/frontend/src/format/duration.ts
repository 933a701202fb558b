import { t } from "../i18n";
import { fixed } from "./figure";
import { NONE } from "./none";

/** A time that something took, from seconds: tenths below ten, and never more than two units. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return NONE;
  if (seconds < 9.95) return `${fixed(seconds, 1)} s`;
  const total = Math.round(seconds);
  if (total < 60) return `${total} s`;
  if (total < 3600) return t("{{minutes}} min {{seconds}} s", { minutes: Math.floor(total / 60), seconds: total % 60 });
  return t("{{hours}} h {{minutes}} min", { hours: Math.floor(total / 3600), minutes: Math.floor((total % 3600) / 60) });
}
