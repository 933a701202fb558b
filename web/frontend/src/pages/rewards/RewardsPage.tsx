import { Title } from "@mantine/core";

/** The area Rewards. */
export default function RewardsPage() {
  return <Title order={1}>Rewards</Title>;
}
