// Each cell learns its column's name, so that site.css can stack a row's cells on a narrow screen.
document.querySelectorAll(".md-typeset table").forEach(table => {
  const names = [...table.querySelectorAll("thead th")].map(head => head.textContent.trim());
  table.querySelectorAll("tbody tr").forEach(row =>
    [...row.cells].forEach((cell, column) => cell.dataset.column = names[column] ?? ""));
});
