import { Alert, Button, Code, Select, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useEffect, useState } from "react";
import { Trans } from "react-i18next";

import { t } from "../../../i18n";
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
            label={t("Loop")}
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
            <Trans
              i18nKey="No loop is described in this workspace yet. Describe one here, or put a file into its folder <code>loops</code>: <code2>assay curate stage1 --example > loops/first.yaml</code2>"
              components={{ code: <Code />, code2: <Code /> }}
            />
          </Text>
        )}
        <Button variant="default" onClick={open}>{t("Describe a new loop")}</Button>
      </Stack>
      {broken.map((one) => (
        <Alert key={one.file} color="yellow" py={6}>
          {t("{{file}} cannot be run: {{problem}}", { file: one.file, problem: one.problem })}
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
