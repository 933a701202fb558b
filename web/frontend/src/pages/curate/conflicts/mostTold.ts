import type { Schemas } from "../../../api/client";

type Parties = Schemas["PartyAgreement"];

/** The two parties to begin with: those that contradict each other most, and of equals those that have most in common. */
export function mostTold(parties: Parties[]): Parties["between"] {
  return [...parties].sort((one, other) => other.opposed - one.opposed || other.common - one.common)[0]!.between;
}
