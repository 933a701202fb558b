import { Title } from "@mantine/core";

/** The area Annotate. */
export default function AnnotatePage() {
  return <Title order={1}>Annotate</Title>;
}
