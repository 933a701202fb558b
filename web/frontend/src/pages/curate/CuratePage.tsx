import { Title } from "@mantine/core";

/** The area Curate. */
export default function CuratePage() {
  return <Title order={1}>Curate</Title>;
}
