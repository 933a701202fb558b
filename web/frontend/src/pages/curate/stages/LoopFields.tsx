import { Alert, Button, Code, Select, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useEffect, useState } from "react";

import { NewLoopDialog } from "./NewLoopDialog";
import type { Options, Settings } from "./useStages";

/** Choosing one of the workspace's loops, or describing a new one. */
export function LoopFields({ options, onChange }: { options: Options; onChange: (settings: Settings) => void }) {
  const [file, setFile] = useState<string | null>(options.loops.find((one) => one.problem === null)?.file ?? null);
  const [opened, { open, close }] = useDisclosure();
  useEffect(() => {
    if (file !== null) onChange({ stage: "stage1", file });
  }, [file, onChange]);
  const broken = options.loops.filter((one) => one.problem !== null);
  return (
    <Stack gap="xs">
      <Stack gap={6} align="start">
        {options.loops.length > broken.length ? (
          <Select
            label="Loop"
            w={360}
            maw="100%"
            data={options.loops
              .filter((one) => one.problem === null)
              .map((one) => ({
                value: one.file,
                label: `${one.name ?? one.file}, ${one.iterations} iterations${one.begun ? ", begun" : ""}`,
              }))}
            value={file}
            onChange={setFile}
            allowDeselect={false}
          />
        ) : (
          <Text size="sm">
            No loop is described in this workspace yet. Describe one here, or put a file into its folder <Code>loops</Code>:{" "}
            <Code>assay curate stage1 --example &gt; loops/first.yaml</Code>
          </Text>
        )}
        <Button variant="default" onClick={open}>
          Describe a new loop
        </Button>
      </Stack>
      {broken.map((one) => (
        <Alert key={one.file} color="yellow" py={6}>
          {one.file} cannot be run: {one.problem}
        </Alert>
      ))}
      {opened && (
        <NewLoopDialog
          options={options}
          onClose={close}
          onMade={(file) => {
            setFile(file);
            close();
          }}
        />
      )}
    </Stack>
  );
}
