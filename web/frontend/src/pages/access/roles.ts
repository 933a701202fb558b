import type { Role } from "../../api/session";

/** Each role, and all that it may do. */
export const ROLES: { value: Role; label: string; may: string }[] = [
  { value: "viewer", label: "Viewer", may: "look at everything but the accounts" },
  { value: "annotator", label: "Annotator", may: "vote on what they are asked, and see nothing else" },
  { value: "curator", label: "Curator", may: "look at everything but the accounts, vote, run stages, make queues and settle disputes" },
  { value: "admin", label: "Admin", may: "do everything, and manage accounts" },
];

export function mayDo(role: Role): string {
  return ROLES.find((each) => each.value === role)?.may ?? "";
}
