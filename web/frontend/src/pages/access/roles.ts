import type { Role } from "../../api/session";
import { t, textKey } from "../../i18n";

const NAMES: Record<Role, string> = {
  viewer: textKey("viewer"),
  annotator: textKey("annotator"),
  curator: textKey("curator"),
  admin: textKey("admin"),
};

const MAY: Record<Role, string> = {
  viewer: textKey("look at everything but the accounts"),
  annotator: textKey("vote on what they are asked, and see nothing else"),
  curator: textKey("look at everything but the accounts, vote, run stages, make queues and settle disputes"),
  admin: textKey("do everything, and manage accounts"),
};

/** A role in words, within a sentence. */
export function roleName(role: Role): string {
  return t(NAMES[role]);
}

/** All that a role may do, after "they may". */
export function mayDo(role: Role): string {
  return t(MAY[role]);
}

/** The roles to choose from. */
export function roleChoices(): { value: Role; label: string }[] {
  return (Object.keys(NAMES) as Role[]).map((value) => {
    const name = roleName(value);
    return { value, label: name[0]!.toUpperCase() + name.slice(1) };
  });
}
