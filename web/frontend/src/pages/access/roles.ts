import type { Role } from "../../app/session";

/** What each role may do beside all that the ones before it may. */
export const ROLES: { value: Role; label: string; may: string }[] = [
  { value: "viewer", label: "Viewer", may: "looks at everything but the accounts" },
  { value: "annotator", label: "Annotator", may: "also votes" },
  { value: "curator", label: "Curator", may: "also runs stages, makes queues and settles disputes" },
  { value: "admin", label: "Admin", may: "also manages accounts and reads the audit log" },
];

export function mayDo(role: Role): string {
  return ROLES.find((each) => each.value === role)?.may ?? "";
}
