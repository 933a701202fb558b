import { ActionIcon, Menu } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconDownload } from "@tabler/icons-react";

import { t } from "../i18n";
import { download, pngOf } from "./chartExport";

interface ExportMenuProps {
  title: string;
  csv: () => string;
  /** None: it shows no picture now. */
  svg?: () => string | null;
}

/** A chart to take away: its numbers, or a picture of what is seen. */
export function ExportMenu({ title, csv, svg }: ExportMenuProps) {
  const picture = async (format: "svg" | "png") => {
    const drawn = svg?.() ?? null;
    if (drawn === null) return;
    try {
      download(`${title}.${format}`, format === "svg" ? drawn : await pngOf(drawn), "image/svg+xml");
    } catch {
      notifications.show({ color: "red", message: t("This browser could not draw the picture. Take the SVG.") });
    }
  };
  return (
    <Menu position="bottom-end" withinPortal>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="sm" aria-label={t("{{title}}: download", { title })}>
          <IconDownload size={16} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item onClick={() => download(`${title}.csv`, csv(), "text/csv")}>{t("Numbers (CSV)")}</Menu.Item>
        {svg !== undefined && (
          <>
            <Menu.Item onClick={() => void picture("svg")}>{t("Picture (SVG)")}</Menu.Item>
            <Menu.Item onClick={() => void picture("png")}>{t("Picture (PNG)")}</Menu.Item>
          </>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}
