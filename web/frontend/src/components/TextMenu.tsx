import { ActionIcon, Popover, SegmentedControl, Stack, Switch, Text, Tooltip } from "@mantine/core";
import { IconTextSize } from "@tabler/icons-react";

import { t } from "../i18n";
import { SIZES, useReading, type Font } from "./reading";

/** How texts are read: their size and font, and long lines of code. */
export function TextMenu() {
  const [{ size, font, wrapCode }, change] = useReading();
  const fonts: { value: Font; label: string }[] = [
    { value: "sans", label: t("Sans") },
    { value: "serif", label: t("Serif") },
    { value: "mono", label: t("Mono") },
    { value: "dyslexia", label: t("Dyslexia") },
  ];
  return (
    <Popover position="bottom-end" trapFocus withArrow>
      <Popover.Target>
        <Tooltip label={t("Size and font of texts")}>
          <ActionIcon variant="subtle" color="gray" aria-label={t("Size and font of texts")}>
            <IconTextSize size={18} stroke={1.6} />
          </ActionIcon>
        </Tooltip>
      </Popover.Target>
      <Popover.Dropdown aria-label={t("Size and font of texts")}>
        <Stack gap="xs">
          <Text size="xs" className="dim">
            {t("Size of texts")}
          </Text>
          <SegmentedControl
            aria-label={t("Size of texts")}
            value={String(size)}
            onChange={(value) => change({ size: Number(value) })}
            data={SIZES.map((one) => ({ value: String(one), label: `${Math.round(100 * one)} %` }))}
          />
          <Text size="xs" className="dim">
            {t("Font of texts")}
          </Text>
          <SegmentedControl aria-label={t("Font of texts")} value={font} onChange={(value) => change({ font: value as Font })} data={fonts} />
          <Switch label={t("Break long lines of code")} checked={wrapCode} onChange={(event) => change({ wrapCode: event.currentTarget.checked })} />
        </Stack>
      </Popover.Dropdown>
    </Popover>
  );
}
